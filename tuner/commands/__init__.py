"""What the commands do; `tuner.cli.app` holds their options and imports each when it is used."""
