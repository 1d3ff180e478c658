"""Images: files and arrays, the data sets of small images, their corruptions, and ImageNet, decoded batch by batch."""
