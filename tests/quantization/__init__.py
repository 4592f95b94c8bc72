"""Tests of lucid_fx.quantization, one file for each of its modules."""
