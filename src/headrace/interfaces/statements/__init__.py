"""The implementation of statements, a package per kind. Classes have only the parts they use."""
