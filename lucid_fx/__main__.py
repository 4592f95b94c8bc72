"""`python -m lucid_fx`: the same as the command `lucid-fx`."""

import sys

from lucid_fx.cli import main

if __name__ == "__main__":
    sys.exit(main())
