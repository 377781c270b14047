"""What an id is: the only place that knows tokenizer families."""

from tokagnostic.tokens.token_bytes import PrefixRule, TokenBytes, TokenKind

__all__ = ["PrefixRule", "TokenBytes", "TokenKind"]
