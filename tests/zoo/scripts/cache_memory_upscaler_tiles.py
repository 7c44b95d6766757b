# kind:   an image model applied tile by tile, FP16 autocast entered once at the top of the program
# wrong:  half copies of every convolution stay beside the FP32 ones
# expect: autocast-cache-memory
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(3)


def block(width):
    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True))


net = nn.Sequential(nn.Conv2d(3, 512, 1), *[block(512) for _ in range(9)], nn.Conv2d(512, 3, 1))


@torch.inference_mode()
def upscale(image, size=2):
    for row in range(0, image.shape[-2], size):
        for column in range(0, image.shape[-1], size):
            tile = image[..., row : row + size, column : column + size]
            image[..., row : row + size, column : column + size] = net(tile).float()
    return image


amp = torch.autocast("cpu", dtype=torch.bfloat16)
amp.__enter__()
print(upscale(torch.rand(1, 3, 4, 4)).mean().item())
amp.__exit__(None, None, None)
