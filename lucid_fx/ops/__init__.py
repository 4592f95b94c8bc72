"""The op table: how each operator is quantized, priced and lowered."""
