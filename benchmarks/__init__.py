"""What `locus bench` and `locus reproduce` run."""
