"""What the browser must do itself, as ``st.components.v2``: plain JavaScript files, no build, no iframe."""
