"""Config fields, validation and config files."""
