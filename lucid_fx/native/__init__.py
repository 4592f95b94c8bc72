"""The native library: finding and loading it, and its functions area by area."""
