"""Copies of the store on master candidates: who leads, who has which history."""
