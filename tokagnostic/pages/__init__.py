"""Results as JSON values to pages that need nothing but a browser."""

from tokagnostic.pages.writing import check_page, overlap_page, tokenizer_page, write_page

__all__ = ["check_page", "overlap_page", "tokenizer_page", "write_page"]
