"""Where the time goes, and what each knob is worth."""
