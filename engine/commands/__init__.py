"""What each command of `python -m engine` does. One module a group; `engine.cli` says which."""
