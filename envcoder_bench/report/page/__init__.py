"""The pages, each one HTML file that needs no other: one shell, and the page of a run, a search or a comparison."""
