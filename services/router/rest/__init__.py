"""The router's REST APIs: codecs and handlers over services.chassis.http, and the listener that serves them."""
