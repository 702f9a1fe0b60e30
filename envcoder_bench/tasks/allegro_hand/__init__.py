"""An Allegro Hand turns a cube in its palm to one goal orientation after another."""
