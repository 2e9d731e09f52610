"""A small decoder on two workers of this host: it continues series of whole numbers."""
import runnel
import torch
from torch import nn

TOKENS, POSITIONS, FEATURES = 32, 16, 64


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, FEATURES), nn.Embedding(POSITIONS, FEATURES)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(FEATURES, 4, 128, dropout=0, activation="gelu", batch_first=True,
                                                               norm_first=True) for _ in range(2))
        self.end = nn.Linear(FEATURES, TOKENS)
        self.register_buffer("mask", torch.triu(torch.full((POSITIONS, POSITIONS), float("-inf")), 1))

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.size(1)))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.end(x)


series = (torch.randint(TOKENS, (4000, 1)) + torch.randint(1, 5, (4000, 1)) * torch.arange(POSITIONS + 1)) % TOKENS
x, y = series[:, :-1], series[:, 1:]
net = Decoder()

run = runnel.fit(net, x[:3500], y[:3500], validation=(x[3500:], y[3500:]), workers=2, epochs=8, batch_size=50, optimizer="adamw", lr=0.002)

with torch.no_grad():
    right = (net.eval()(x[3500:]).argmax(2) == y[3500:]).float().mean()
print(f"accuracy on the test {run.accuracy:.2%}; of the module in torch {right:.2%}")
