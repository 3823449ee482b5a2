"""The plugins that make an amqtt broker a Locus broker, and the engine under them."""
