"""ANYmal C tracks velocity commands on rough ground."""
