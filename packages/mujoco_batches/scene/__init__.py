"""What scenes with many robots are described with: parameters, properties, transforms."""
