"""A small torch module on three workers of this host: two spirals, told apart."""
import math

import runnel
import torch

turns = torch.rand(3000) * 3 * math.pi
kinds = torch.arange(3000) % 2
x = torch.stack([turns * torch.cos(turns + kinds * math.pi), turns * torch.sin(turns + kinds * math.pi)], 1) / 9
net = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))

run = runnel.fit(net, x, kinds, workers=3, epochs=60, batch_size=50)

right = (net(x).argmax(1) == kinds).float().mean()
print(f"accuracy on the test {run.accuracy:.1%}; of the module in torch, on all {right:.1%}")
