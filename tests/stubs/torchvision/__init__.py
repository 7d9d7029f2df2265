# What a CUDA build of torchvision does beside a CPU build of torch.
raise RuntimeError("operator torchvision::nms does not exist")
