"""Tasks of the experiments: translation, and a language model over characters."""
