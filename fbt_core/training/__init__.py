"""How the bundled models are trained: a language whose dependencies are known, and the loop that fits a model to it."""
