"""Node calls about OS definitions: their scripts, environment and archives."""
