"""Readings to Plotly figures: numpy in, ``go.Figure`` out. No streamlit and no torch here."""
