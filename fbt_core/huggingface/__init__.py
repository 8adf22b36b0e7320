"""Models of the transformers library: their configs, classes and traces. The library is imported when one is opened."""
