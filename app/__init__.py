"""The browser app: everything between a page and ``fbt_core``."""
