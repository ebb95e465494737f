"""Writes a part of MNIST: 8192 images to train with, 1000 to test with.

Usage: small_mnist.py DATA FOLDER
"""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import program_runs

program_runs.DATA, folder = sys.argv[1:]
if not os.path.exists(os.path.join(program_runs.DATA, "train-images-idx3-ubyte.gz")):
    sys.exit(77)
os.makedirs(folder, exist_ok=True)
program_runs.write_part(folder, "train", 8192)
program_runs.write_part(folder, "t10k", 1000)
