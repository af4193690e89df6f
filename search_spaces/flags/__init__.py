"""SGLang server flags: names, values, versions."""
