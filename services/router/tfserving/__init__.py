"""TensorFlow Serving's protocols, REST (V1) and gRPC, as codecs of the router's requests and answers."""
