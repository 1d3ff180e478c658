"""The study of diabetic-retinopathy screening (R): its benchmark and conclusions; its figures are generic sections."""
