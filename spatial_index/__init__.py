"""Pure data structures for places, intervals and regions: no I/O, useful without a broker."""
