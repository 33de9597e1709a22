"""`python -m engine ...`: the lab on the command line."""

from engine.cli import main

raise SystemExit(main())
