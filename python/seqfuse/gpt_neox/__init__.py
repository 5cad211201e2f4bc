"""GPT-NeoX language models (Pythia and others): fused norms inside Hugging Face's model, and seqfuse's own engine."""
