"""BERT encoders: seqfuse's own, without padding, and fused layers inside Hugging Face's model."""
