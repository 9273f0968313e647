"""A model without weights: tokens that show every fault, time that a card would take."""
