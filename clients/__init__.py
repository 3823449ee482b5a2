"""The client library and the command line of Locus."""
