"""Writes image_transforms.txt, which image_writer_test reads: one small image through each transform, by PyTorch.

    build/venv/bin/python tests/data/goldens/image_transforms.py > tests/data/goldens/image_transforms.txt
"""
import torch
import torch.nn.functional as F

channels, height, width = 3, 4, 5
image = torch.tensor([[[(c * 97 + r * 41 + k * 23 + r * k * 7) % 256 for k in range(width)] for r in range(height)]
                      for c in range(channels)], dtype=torch.uint8).float()
mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
std = torch.tensor([0.2023, 0.1994, 0.2010]).view(3, 1, 1)

crop = F.pad(image, (2, 2, 2, 2))[:, 3:3 + height, 1:1 + width]  # a border of 2, row 3, column 1
flip = image.flip(2)


def resize(pixels, size):
    return F.interpolate(pixels[None], size=(size, size), mode="bilinear", align_corners=False)[0]


def show(name, pixels):
    print(name, *(f"{value:.6g}" for value in pixels.flatten().tolist()))


show("image", image)
show("crop", crop / 255)
show("flip", flip / 255)
show("enlarge", resize(image, 6) / 255)
show("shrink", resize(image, 2) / 255)
show("normalise", (image / 255 - mean) / std)
show("all", (resize(crop.flip(2), 6) / 255 - mean) / std)
