"""Explain where decoding time goes and what each knob gains."""
