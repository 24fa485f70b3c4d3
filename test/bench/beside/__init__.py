"""Running placement programs beside another implementation of them."""
