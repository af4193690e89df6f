"""What the commands do; `tuner.cli` holds their options and imports each when it is used."""
