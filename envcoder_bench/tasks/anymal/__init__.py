"""ANYmal C tracks velocity commands on flat ground."""
