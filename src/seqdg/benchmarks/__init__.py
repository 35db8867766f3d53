"""One TOML file per table of the paper and per benchmark that comes with the package."""
