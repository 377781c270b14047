"""SentencePiece models, which carry their pieces and their rules in one protocol buffer."""
