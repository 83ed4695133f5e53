"""Contracts and basics that every other package uses; imports no other package of Rematch."""
