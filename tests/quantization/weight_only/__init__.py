"""Tests of lucid_fx.quantization.block, one file for each of its modules."""
