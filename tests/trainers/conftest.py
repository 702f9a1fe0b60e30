import torch

torch.set_num_threads(1)  # these tests are many small operations: threads would only wait for each other
