"""Functions under the names and with the arguments that other packages gave them."""
