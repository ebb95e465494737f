"""Writes image_operations.bin and augment_policies.txt, which augment_test reads: images through Pillow's operations as
torchvision calls them, and torchvision's policies.

    pip install pillow numpy torch torchvision
    python tests/data/goldens/image_operations.py tests/data/goldens
"""
import pathlib
import sys

import numpy
import torch
try:
    import torchvision
except RuntimeError:  # built for another LibTorch: its operators are missing, but not needed here
    for module in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[module]
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision
from PIL import Image
from torchvision.transforms import AutoAugment, AutoAugmentPolicy, InterpolationMode, RandAugment
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import _apply_op

folder = pathlib.Path(sys.argv[1])
file = open(folder / "image_operations.bin", "wb")
height, width = 19, 26


def record(name, image):
    """A line "NAME CHANNELS HEIGHT WIDTH", then the bytes, one channel after the other."""
    pixels = numpy.asarray(image)
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    file.write(f"{name} {' '.join(map(str, pixels.shape))}\n".encode() + pixels.tobytes())


random = numpy.random.default_rng(1)
y, x = numpy.mgrid[0:height, 0:width]
colours = numpy.stack([20 + 8 * x + random.integers(0, 30, x.shape), 240 - 9 * y + random.integers(-30, 10, x.shape),
                       128 + 70 * numpy.sin(x / 3 + y / 5) + random.integers(-20, 20, x.shape)], axis=2)
colour = Image.fromarray(numpy.clip(colours, 5, 250).astype(numpy.uint8))
grey = colour.convert("L")
images = {"colour": colour, "grey": grey}
for name, image in images.items():
    record(f"image {name}", image)

amounts = {"ShearX": [0.1, -0.3], "ShearY": [0.2, -0.3], "TranslateX": [3.9, -7], "TranslateY": [6.5, -2.2],
           "Rotate": [10, -30], "Brightness": [0.9, -0.4], "Color": [0.9, -0.7], "Contrast": [0.6, -0.9],
           "Sharpness": [0.9, -0.5], "Posterize": [4, 7], "Solarize": [100, 226.67], "AutoContrast": [0],
           "Equalize": [0], "Invert": [0], "Identity": [0]}
for name, image in images.items():
    for operation, list_of in amounts.items():
        for amount in list_of:
            record(f"operation {name} {operation} {amount}",
                   _apply_op(image, operation, amount, InterpolationMode.NEAREST, None))
    for part in (-0.5, -0.1, 0.07, 0.3):
        record(f"hue {name} {part}", F.adjust_hue(image, part))
    for box in ((0, 0, height, width, 32, 32), (3, 5, 12, 9, 16, 16), (1, 2, 17, 23, 8, 8), (4, 4, 8, 8, 8, 8)):
        top, left, high, wide, *size = box
        record(f"crop {name} {' '.join(map(str, box))}",
               F.resized_crop(image, top, left, high, wide, size, InterpolationMode.BILINEAR))

# Each pair of each policy, every operation applied, signs drawn to +, then to -.
table = open(folder / "augment_policies.txt", "w")
for name, which in (("cifar10", AutoAugmentPolicy.CIFAR10), ("imagenet", AutoAugmentPolicy.IMAGENET)):
    policy = AutoAugment(which)
    for index, pair in enumerate(policy.policies):
        for operation, probability, bin in pair:
            table.write(f"{name} {index} {operation} {probability} {-1 if bin is None else bin}\n")
        for sign in (0, 1):
            if sign == 1 and index >= 10:
                continue
            policy.get_params = lambda count: (index, torch.zeros(2), torch.full((2,), sign))
            record(f"policy {name} {index} {sign}", policy(colour))
for bins, space in ((10, AutoAugment()._augmentation_space(10, (height, width))),
                    (31, RandAugment()._augmentation_space(31, (height, width)))):
    for operation, (magnitudes, signed) in space.items():
        for bin, magnitude in enumerate(magnitudes.tolist() if magnitudes.ndim else [0.0]):
            table.write(f"magnitude {bins} {operation} {bin} {magnitude} {int(signed)}\n")
