"""Where changes come from: one module per external system."""
