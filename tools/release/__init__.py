"""What must hold before a package is tagged. `nox -s release -- --check`; the steps are in CONTRIBUTING.md."""
